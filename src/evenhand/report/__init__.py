"""Tell the figures to people: one HTML file that needs nothing else.

write_comparison (into a file), comparison_page (as text). Nothing is computed here but sums for the eye: what is told
was measured before.
"""

from evenhand.report.page import comparison_page, write_comparison

__all__ = ["comparison_page", "write_comparison"]
