"""Tables, figures and theory of five papers on continuous-time networks, on top of tauflow."""
