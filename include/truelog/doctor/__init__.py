"""The doctor: examines what the platform depends on, and says what is wrong and how to cure it. It changes nothing."""
