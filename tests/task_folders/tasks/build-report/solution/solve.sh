#!/bin/bash
mkdir -p report
while read -r user action; do echo "$action" >>"report/$user"; done <events.txt
