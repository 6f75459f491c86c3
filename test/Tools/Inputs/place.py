"""Gives the stages of a plan JSON other devices: place.py IN OUT DEVICES STRATEGIES.

DEVICES and STRATEGIES are lists by stage, as "2,3;0,1" and "dp2;tp2".
"""
import json
import sys

source, target, devices, strategies = sys.argv[1:]
plan = json.load(open(source))
for stage, own in zip(plan["stages"], devices.split(";")):
    stage["devices"] = [int(device) for device in own.split(",")]
for layer in plan["layers"]:
    layer["strategy"] = strategies.split(";")[layer["stage"]]
json.dump(plan, open(target, "w"))
