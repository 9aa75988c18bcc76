"""Ships code to the executors of a cluster: archives of our package, of the program's modules and of packages.

In local mode this package is unused: tasks have the driver's interpreter with everything it can import.
"""
