"""The page for planners: templates, small scripts, and the routes that show them."""
