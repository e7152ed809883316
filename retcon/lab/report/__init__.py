"""Outcomes -> the paper's tables, figures and one page that shows them."""
