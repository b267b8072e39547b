#!/bin/bash
sed -i s/old/new/ page.txt
