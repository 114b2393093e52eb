# A Kubernetes of one node: etcd, the API server, controllers, scheduler, kubelet,
# containerd, and a bridge for its pods; and the control groups that it runs in.
# Sourced after packaging/chroot.sh.  The namespaces that it is started in take all
# of it with them when they end.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

node=10.244.0.1
run=$work/kubernetes

# ---- control groups ----

# hierarchies: of cgroup v1, where each is mounted, and with which options.
hierarchies ()
{
  awk '{ for (i = 7; $i != "-"; i++); if ($(i + 1) == "cgroup") print $5, $NF }' \
    /proc/self/mountinfo | sed 's/ rw,/ /'
}

# own_trees: a folder in each, below the group that the script was started in.
own_trees ()
{
  local at options

  hierarchies | while read -r at options; do
    echo "$at$(sed -n "s/^[0-9]*:$options:\/*/\//p" /proc/self/cgroup)/${work##*/}"
  done
}

# enter_cgroups: move this process, and so all that it starts, to them.
enter_cgroups ()
{
  local trees tree file

  # All before the first move, which changes what own_trees finds.
  mapfile -t trees < <(own_trees)
  for tree in "${trees[@]}"; do
    mkdir -p "$tree"
    # No process may enter without these.
    for file in cpuset.cpus cpuset.mems; do
      [ ! -e "$tree/$file" ] || cat "$tree/../$file" >"$tree/$file"
    done
    echo 0 >"$tree/cgroup.procs"
  done
}

# mount_cgroups: in a cgroup namespace, so they look like all that there is.
mount_cgroups ()
{
  local at options

  hierarchies >"$work/hierarchies"
  umount --recursive --lazy /sys/fs/cgroup
  mount -t tmpfs none /sys/fs/cgroup
  while read -r at options; do
    [[ $options != *name=* ]] || options=none,$options
    mkdir -p "$at"
    mount -t cgroup -o "$options" none "$at"
  done <"$work/hierarchies"
}

# remove_cgroups: from outside, when all processes in them have ended.
remove_cgroups ()
{
  local tree

  for tree in $(own_trees); do
    [ ! -d "$tree" ] || find "$tree" -depth -type d -exec rmdir {} +
  done
}

# ---- the cluster ----

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

# The kubelet sets these of the whole machine, and does not run otherwise: give it
# files of its own to write to, in this mount namespace.
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
  openssl genrsa -out "$run/sa.key" 2048 2>/dev/null
  # Only processes in this network namespace reach the API server.
  echo 'token,admin,admin,system:masters' >"$run/tokens"
  cat >"$run/admin.conf" <<END
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: token}}]
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
evictionHard: {memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
podLogsDir: $run/logs
END
  # restrict_oom_score_adj: root may not lower the score on every machine.
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
}

# up NAME COMMAND...: the command, of the program with this log, succeeds soon.
up ()
{
  within 180 "${@:2}" >/dev/null 2>&1 || {
    tail -n 20 "$run/$1.log" >&2
    die "$1 does not start"
  }
}

start_kubernetes ()
{
  local image ctr=(ctr -a "$run/containerd.sock")

  mkdir -p "$run/etcd"
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
  started apiserver kube kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
    --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port=6443 \
    --endpoint-reconciler-type=none --cert-dir="$run/cert" \
    --kubelet-preferred-address-types=InternalIP \
    --authorization-mode=AlwaysAllow --token-auth-file="$run/tokens" \
    --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file="$run/sa.key" \
    --service-account-signing-key-file="$run/sa.key" \
    --service-cluster-ip-range=10.96.0.0/24
  up containerd "${ctr[@]}" version
  for image in pause convert; do
    "${ctr[@]}" -n k8s.io images import "$built/image/$image.tar" >/dev/null
  done
  up apiserver kubectl get --raw /readyz
  started controllers kube kube-controller-manager \
    --kubeconfig="$run/admin.conf" --leader-elect=false \
    --bind-address=127.0.0.1 --cert-dir="$run/cert-manager" \
    --service-account-private-key-file="$run/sa.key"
  started scheduler kube kube-scheduler --kubeconfig="$run/admin.conf" \
    --leader-elect=false --bind-address=127.0.0.1 \
    --cert-dir="$run/cert-scheduler"
  started kubelet kube kubelet --config="$run/kubelet.yaml" \
    --kubeconfig="$run/admin.conf" --root-dir="$run/kubelet" \
    --cert-dir="$run/cert-kubelet" --hostname-override=node1 --node-ip=$node
  up kubelet node_is_ready
}

node_is_ready ()
{
  kubectl get node node1 --no-headers | grep -q ' Ready '
}

# volume NAME MODE PATH: of this node, for the claim of the same name.
volume ()
{
  kubectl apply -f - >/dev/null <<END
apiVersion: v1
kind: PersistentVolume
metadata: {name: $1}
spec:
  capacity: {storage: 5Gi}
  volumeMode: $2
  accessModes: [ReadWriteOnce]
  storageClassName: local
  claimRef: {namespace: default, name: $1}
  local: {path: $3}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node1]}]
END
}

# claim NAME PATH: a file system.
claim ()
{
  volume "$1" Filesystem "$2"
  kubectl apply -f - >/dev/null <<END
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: $1}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: local
  resources: {requests: {storage: 5Gi}}
END
}
