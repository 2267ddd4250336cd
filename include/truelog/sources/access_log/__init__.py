"""Access logs of web servers as a source of page views."""
