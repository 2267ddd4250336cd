"""The service that publishes the events of accepted commands and reads the states on which commands are decided."""
