"""Files that are complete or absent, verified before they are used, and never run as code."""
