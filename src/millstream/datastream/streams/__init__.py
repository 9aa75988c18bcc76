"""Behind `data_stream`: each class of stream, and what they share. Ours; no path here is PyFlink's."""
