"""From the logical graph to stages, and from stages to Spark."""
