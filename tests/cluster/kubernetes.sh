# A Kubernetes of one node: etcd, the API server, controllers, scheduler, kubelet,
# containerd, and a bridge for its pods.  To be started in mount, network, PID and
# cgroup namespaces of its own, which take it with them when they end.
# Sourced after outcome.sh and disks.sh.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

node=10.244.0.1
pods_mib=1024           # memory of the node that pods may have, all together

kubectl ()
{
  kube kubectl --cache-dir="$run/kubectl" --kubeconfig="$run/admin.conf" "$@"
}

# The node's address has to be on an interface that is not lo.
make_network ()
{
  hostname node1
  ip link set lo up
  ip link add pods0 type bridge
  ip addr add $node/24 dev pods0
  ip link set pods0 up
  mkdir -p "$run/cni"
  cat >"$run/cni/10-pods.conf" <<END
{"cniVersion": "0.4.0", "name": "pods", "type": "bridge", "bridge": "pods0",
 "isGateway": true, "ipMasq": false,
 "ipam": {"type": "host-local", "dataDir": "$run/ipam",
          "ranges": [[{"subnet": "10.244.0.0/24"}]]}}
END
}

# The kubelet sets these of the whole machine, and does not run without: it is
# given files of its own to write to.
hide_sysctls ()
{
  local setting file

  mkdir -p "$run/sysctls"
  for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 \
    kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 \
    kernel/keys/root_maxbytes=25000000; do
    file=${setting%=*}
    echo "${setting#*=}" >"$run/sysctls/${file//\//.}"
    mount --bind "$run/sysctls/${file//\//.}" "/proc/sys/$file"
  done
}

configure ()
{
  local token total

  openssl genrsa -out "$run/sa.key" 2048 2>/dev/null
  token=$(openssl rand -hex 16)
  echo "$token,admin,admin,system:masters" >"$run/tokens"
  total=$(awk '$1 == "MemTotal:" { print int($2 / 1024) }' /proc/meminfo)
  cat >"$run/admin.conf" <<END
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: $token}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
END
  cat >"$run/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $node
readOnlyPort: 0
healthzBindAddress: 127.0.0.1
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix://$run/containerd.sock
failSwapOn: false
makeIPTablesUtilChains: false
resolvConf: ""
clusterDNS: []
systemReserved: {memory: $((total - pods_mib))Mi}
evictionHard: {memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeStatusUpdateFrequency: 2s
podLogsDir: $run/logs
END
  # Where the machine's own root may not raise a process's priority for the
  # killer of processes, containerd must not try.
  cat >"$run/containerd.toml" <<END
version = 2
root = "$run/containerd/root"
state = "$run/containerd/state"
[grpc]
  address = "$run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause_name"
  restrict_oom_score_adj = true
  device_ownership_from_security_context = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$built/kubernetes/usr/lib/cni"
    conf_dir = "$run/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "$built/kubernetes/usr/sbin/runc"
        SystemdCgroup = false
END
}

# started NAME COMMAND...: in the background, with a log.
started ()
{
  "${@:2}" >>"$run/$1.log" 2>&1 </dev/null &
  echo $! >"$run/$1.pid"
  # Not to be told of when it is killed.
  disown
}

start_kubernetes ()
{
  local image

  run=$work/kubernetes
  mkdir -p "$run" "$run/etcd"
  PATH=$built/bin:$built/kubernetes/usr/bin:$built/kubernetes/usr/sbin:$PATH
  make_network
  hide_sysctls
  configure
  mount -t tmpfs none "$run/etcd"
  started etcd etcd --data-dir "$run/etcd/data" \
    --listen-client-urls http://127.0.0.1:2379 \
    --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380
  started containerd containerd -c "$run/containerd.toml"
  # Pods are thought lost sooner than after the five minutes of a real cluster.
  started apiserver kube kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
    --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port=6443 \
    --endpoint-reconciler-type=none --cert-dir="$run/cert" \
    --kubelet-preferred-address-types=InternalIP \
    --authorization-mode=AlwaysAllow --token-auth-file="$run/tokens" \
    --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file="$run/sa.key" \
    --service-account-signing-key-file="$run/sa.key" \
    --service-cluster-ip-range=10.96.0.0/24 \
    --default-not-ready-toleration-seconds=5 \
    --default-unreachable-toleration-seconds=5
  within 60 ctr -a "$run/containerd.sock" version >/dev/null 2>&1 ||
    die "containerd does not start, see $run/containerd.log"
  for image in pause convert; do
    ctr -a "$run/containerd.sock" -n k8s.io images import \
      "$built/image/$image.tar" >>"$run/images.log" 2>&1
  done
  within 180 api_is_ready ||
    die "the API server does not start, see $run/apiserver.log"
  started controller-manager kube kube-controller-manager \
    --kubeconfig="$run/admin.conf" --leader-elect=false \
    --bind-address=127.0.0.1 --cert-dir="$run/cert-manager" \
    --service-account-private-key-file="$run/sa.key" \
    --node-monitor-grace-period=10s --node-monitor-period=2s
  started scheduler kube kube-scheduler --kubeconfig="$run/admin.conf" \
    --leader-elect=false --bind-address=127.0.0.1 \
    --cert-dir="$run/cert-scheduler"
  start_kubelet
  within 120 node_is Ready ||
    die "the node does not become ready, see $run/kubelet.log"
}

api_is_ready ()
{
  kubectl get --raw /readyz >/dev/null 2>&1
}

start_kubelet ()
{
  started kubelet kube kubelet --config="$run/kubelet.yaml" \
    --kubeconfig="$run/admin.conf" --root-dir="$run/kubelet" \
    --cert-dir="$run/cert-kubelet" --hostname-override=node1 --node-ip=$node
}

# node_is Ready, or NotReady
node_is ()
{
  kubectl get node node1 --no-headers 2>/dev/null | grep -q " $1 "
}

# claim VOLUME: as images-VOLUME, a volume of this node.
claim ()
{
  kubectl apply -f - >/dev/null <<END
apiVersion: v1
kind: PersistentVolume
metadata: {name: images-$1}
spec:
  capacity: {storage: 5Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: local
  claimRef: {namespace: default, name: images-$1}
  local: {path: $volumes/$1}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node1]}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: images-$1}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: local
  resources: {requests: {storage: 5Gi}}
END
}
