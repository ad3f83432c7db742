#!/bin/sh
# Tests deployments from a real API server of Kubernetes: tests/kubernetes.sh KUBE_APISERVER. Needs etcd and kubectl
# (Debian's etcd-server and kubernetes-client), nats-server, openssl and python3. No package has the API server; Debian's
# source package `kubernetes` builds it: make WHAT=cmd/kube-apiserver.
set -eu
cd "$(dirname "$0")/.."
cargo build --locked --workspace --bin polliwog
python3 tests/kubernetes/check.py target/debug/polliwog "$1"
