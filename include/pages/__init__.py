"""The pages inside Airflow's UI: a web application that Airflow mounts, and the files that a browser loads from it.

`truelog` reads the data. This package decides who may see the data and delivers it to a browser.
"""
