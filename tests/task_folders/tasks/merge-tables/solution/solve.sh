#!/bin/bash
python3 - <<'PYTHON'
import csv, json, os

prices = {row["item"]: float(row["price"]) for row in csv.DictReader(open("prices.csv"))}
orders = [row for row in csv.DictReader(open("orders.csv")) if row["item"] in prices]
total = sum(int(row["count"]) * prices[row["item"]] for row in orders)
json.dump({"total": round(total, 2), "currency": os.environ["CURRENCY"]}, open("total.json", "w"))
PYTHON
