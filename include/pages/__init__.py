"""The pages inside Airflow's UI: a web application that Airflow mounts, and the files that a browser loads from it.

What is shown is read by `truelog`; here is who may see it, and how it reaches a browser.
"""
