"""How code reaches the executors of a cluster: archives of our package, of the program's modules and of packages.

In local mode nothing of this runs: tasks have the driver's interpreter, with all that it can import.
"""
