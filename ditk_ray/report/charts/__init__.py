"""The charts: Plotly figures, each with a caption that says what it shows."""
