"""Documents for other tools, in the words of other standards: AsyncAPI about topics, ODCS about events and views."""
