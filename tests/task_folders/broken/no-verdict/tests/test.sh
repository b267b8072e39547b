#!/bin/bash
no-such-test-runner /tests
