#!/bin/sh
# Interesting to galvatron-reduce (exit 1): the file still holds an nn.linear.
if galvatron-opt "$1" 2>/dev/null | grep -q nn.linear; then
  exit 1
fi
exit 0
