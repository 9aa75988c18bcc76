"""Message formats: conversion of the bytes in a log or queue to columns and back.

`codecs` holds the contract; each format has its own module.
"""
