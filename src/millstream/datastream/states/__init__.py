"""Behind `state`: what descriptors can say beyond a name and a type. Ours; no path here is PyFlink's."""
