"""Files in and out: `source.FileSource` reads them in ranges, `sink.FileSink` makes them appear whole and once."""
