//! Text, JSON and HTML for people and programs.
