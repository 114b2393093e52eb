# A conversion by virt-v2v in a pod: its image, a guest to convert, and the pod.
# Sourced by the cases of Kubernetes, after setup.sh and kubernetes.sh, and by
# scripts/test-cluster, which makes the first two if the case is asked for.
#
#   $built/image/virt-v2v.tar     an archive of the image
#   $built/guest.img              a disk with one partition, and Debian on it
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

v2v_name=registry.example/virt-v2v-windowed:${image_name##*:}
guest_mib=3072 guest_files=8 guest_file_mib=64

# libguestfs's machine has 512 MiB.  Without KVM qemu also keeps what it has
# translated, up to 1 GiB: a pod of 1 GiB is killed then.
v2v_pod_mib=2048

# Of examples/virt-v2v/Containerfile.debian, on top of the image that there is.
make_v2v_image ()
{
  local image=$built/image/virt-v2v.tar

  [ ! "$image" -nt "$built/image/convert.tar" ] ||
    [ ! "$image" -nt "$top/examples/virt-v2v/Containerfile.debian" ] || return 0
  quietly 'building the image of virt-v2v' build_v2v_image
}

build_v2v_image ()
{
  buildah build --isolation chroot --pull-never --no-cache --tag "$v2v_name" \
    --file "$top/examples/virt-v2v/Containerfile.debian" "$top/examples"
  rm -f "$built/image/virt-v2v.tar"
  buildah push "$v2v_name" "docker-archive:$built/image/virt-v2v.tar:$v2v_name"
  buildah rmi --prune
}

make_guest ()
{
  [ ! -s "$built/guest.img" ] || return 0
  quietly 'making a guest' build_guest
}

# What virt-v2v looks for in a guest: packages, a kernel of theirs and its
# initrd, fstab and grub.cfg.  It has the guest's own tools make a new initrd,
# which is shorter work with few modules.
build_guest ()
{
  local root=$work/guest i

  make_chroot bookworm "$root" grub-common initramfs-tools \
    linux-image-cloud-amd64
  rm -rf "$root"/var/lib/apt/lists/*
  echo 'LABEL=guest / ext4 defaults 0 1' >"$root/etc/fstab"
  sed -i 's/^MODULES=.*/MODULES=list/' \
    "$root/etc/initramfs-tools/initramfs.conf"
  mkdir -p "$root/boot/grub"
  cat >"$root/boot/grub/grub.cfg" <<'END'
menuentry 'Debian' {
  linux /vmlinuz root=LABEL=guest ro
  initrd /initrd.img
}
END
  for ((i = 0; i < guest_files; i++)); do
    head -c "${guest_file_mib}M" /dev/urandom >"$root/srv/$i"
  done
  (cd "$root/srv" && sha256sum ./*) >"$built/guest.sums"
  mke2fs -q -t ext4 -L guest -E root_owner=0:0 -d "$root" "$work/guest.ext4" \
    $((guest_mib - 1))M
  rm -rf --one-file-system "$root"
  truncate -s ${guest_mib}M "$built/guest.img.part"
  echo 'start=1MiB, type=83, bootable' |
    sfdisk --quiet "$built/guest.img.part"
  dd if="$work/guest.ext4" of="$built/guest.img.part" bs=1M seek=1 \
    conv=notrunc,sparse status=none
  rm "$work/guest.ext4"
  mv "$built/guest.img.part" "$built/guest.img"
}

# v2v_pod PATH: for a container, in which "nbdkit" is one or the other.
v2v_pod ()
{
  cat <<END
apiVersion: v1
kind: Pod
metadata: {name: virt-v2v}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: virt-v2v
      image: $v2v_name
      command: [virt-v2v, -i, disk, /in/guest.img, -o, local, -os, /out, -of, raw]
      terminationMessagePolicy: FallbackToLogsOnError
      env:
        - {name: LIBGUESTFS_BACKEND_SETTINGS, value: force_tcg}
        - {name: PATH, value: "$1"}
      resources:
        requests: {memory: 512Mi}
        limits: {memory: ${v2v_pod_mib}Mi}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: tmp, mountPath: /var/tmp, subPath: var}
        - {name: in, mountPath: /in, readOnly: true}
        - {name: out, mountPath: /out}
  volumes:
    - {name: tmp, emptyDir: {}}
    - {name: in, persistentVolumeClaim: {claimName: images-in, readOnly: true}}
    - {name: out, persistentVolumeClaim: {claimName: images-out}}
END
}

# pod_is PHASE...
pod_is ()
{
  local phase

  phase=$(kubectl get pod virt-v2v -o jsonpath='{.status.phase}')
  [[ " $* " = *" $phase "* ]]
}

# watch_memory: of all pods, until it is ended, a line for each that is higher.
watch_memory ()
{
  local most=0 now

  while sleep 0.2; do
    now=$({ cat /sys/fs/cgroup/memory/kubepods/*/pod*/memory.max_usage_in_bytes ||
      :; } 2>/dev/null | sort -n | tail -n 1)
    [ "${now:-0}" -gt "$most" ] || continue
    most=$now
    echo "$most"
  done
}

# guest_is_whole IMAGE: its files are as they were.
guest_is_whole ()
{
  local status=0

  mkdir -p "$work/mnt"
  mount -o ro,loop,offset=1048576 "$1" "$work/mnt"
  (cd "$work/mnt/srv" && sha256sum --quiet --check "$built/guest.sums") ||
    status=$?
  umount "$work/mnt"
  return $status
}

# virt-v2v 2.2 of the image's Debian 12 looks for nbdkit in PATH.
declare -A v2v_paths=(
  [ours]=/usr/local/libexec/nbdkit-windowed-file:/usr/bin:/bin:/usr/sbin:/sbin
  [stock]=/usr/bin:/bin:/usr/sbin:/sbin
)

case_virt-v2v ()
{
  local who

  ctr -a "$run/containerd.sock" -n k8s.io images import \
    "$built/image/virt-v2v.tar" >>"$run/images.log" 2>&1
  cp --sparse=always "$built/guest.img" "$volumes/in/guest.img"
  chmod 644 "$volumes/in/guest.img"
  for who in ours stock; do convert_guest $who; done
  rm "$volumes/in/guest.img"
}

# convert_guest ours|stock
convert_guest ()
{
  local watcher in_cached out_cached=0 began out=$volumes/out/guest-sda

  empty_volume out
  sync "$volumes/in/guest.img"
  dd of="$volumes/in/guest.img" oflag=nocache conv=notrunc,fdatasync count=0 \
    status=none
  watch_memory >"$work/most" &
  watcher=$!
  began=$SECONDS
  v2v_pod "${v2v_paths[$1]}" | kubectl apply -f - >/dev/null
  within 1800 pod_is Succeeded Failed ||
    tell "FAIL: $kind $case: the conversion does not end"
  kill $watcher
  in_cached=$(resident "$volumes/in/guest.img")
  [ ! -e "$out" ] || out_cached=$(resident "$out")
  figure "$1: $((SECONDS - began)) s, $(($(tail -n 1 "$work/most") / 1048576))" \
    "of $v2v_pod_mib MiB, $((in_cached / 1048576)) MiB of the source and" \
    "$((out_cached / 1048576)) MiB of the output left in the page cache"
  check "$1: it is converted" pod_is Succeeded
  pod_is Succeeded || kubectl logs virt-v2v --tail=20
  check "$1: the guest's files are whole" guest_is_whole "$out"
  [ "$1" = stock ] || {
    check 'no page of the source is cached' equal 0 "$in_cached"
    check 'no page of the output is cached' equal 0 "$out_cached"
  }
  kubectl delete pod virt-v2v --now --wait >/dev/null
}
