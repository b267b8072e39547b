#!/bin/bash
awk '$NF >= 500' access.log | wc -l >errors.txt
