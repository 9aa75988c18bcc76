"""File source and sink: `source.FileSource` reads files in ranges, `sink.FileSink` publishes each file whole and
once."""
