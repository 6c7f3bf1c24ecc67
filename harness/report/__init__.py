"""The report: one offline HTML file, and the same words for the terminal."""
