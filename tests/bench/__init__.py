"""`make bench`: how fast each part of the way of an event is, beside two peers that do the same job."""
