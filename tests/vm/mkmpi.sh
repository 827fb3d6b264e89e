#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mkmpi.sh OUT: an initrd archive with Debian's UCX, Open MPI and NetPIPE, with their plug-ins and all libraries, and with
# /usr/bin/cw_mpi, which runs a program on both machines. Exit code 3: a package is missing (packaging/deps/vm.txt).
set -Eeuo pipefail
trap 'echo "$0: line $LINENO failed" >&2' ERR
here=$(dirname "$(readlink -f "$0")")
. "$here/closure.sh"

out=${1:?usage: mkmpi.sh OUT}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
lib=/usr/lib/$(uname -m)-linux-gnu
for file in /usr/bin/ucx_perftest /usr/bin/NPopenmpi /usr/bin/orterun "$lib/openmpi/lib/openmpi3/mca_pml_ucx.so"; do
  if [ ! -e "$file" ]; then
    echo "there is no $file: packaging/deps/install.sh vm" >&2
    exit 3
  fi
done

# Not: other fabrics, file systems, OpenSHMEM, schedulers.
mapfile -t files < <(ls /usr/bin/{ucx_perftest,NPopenmpi,orterun,orted} "$lib"/ucx/*.so.0 "$lib"/openmpi/lib/openmpi3/*.so \
  "$lib"/pmix2/lib/pmix/*.so | grep -vE '_(psm2?|ofi|openib|ucx_shmem|slurm|flux|jsm|romio321|spml|monitoring)\.so|sshmem|scoll|memheap|ompio')
# Plug-ins look for one another beside the libraries.
mapfile -t needed < <(LD_LIBRARY_PATH="$lib/ucx" ldd "${files[@]}" 2>/dev/null | grep -oE '(=> |^\s)/[^ :]+ ' | grep -o '/[^ ]*' | sort -u)
for file in "${files[@]}" "${needed[@]}"; do
  mkdir -p "$root$(dirname "$file")"
  cp -L --preserve=mode "$file" "$root$file"
done
mkdir -p "$root"/{usr/share,etc,usr/bin}
cp -rL /usr/share/openmpi "$root/usr/share/"
if [ -e /etc/openmpi ]; then cp -rL /etc/openmpi "$root/etc/"; fi

# Open MPI starts its daemon on the other machine by a shell there: no ssh is needed between machines of a test.
cat >"$root/usr/bin/cw_rsh" <<'END'
#!/bin/sh
host=$1
shift
echo "$@" | exec nc "$host" 2222
END
cat >"$root/usr/bin/cw_mpi" <<'END'
#!/bin/sh
# cw_mpi ADDRESS ADDRESS ARGUMENTS...: `orterun -np 2` with one rank on each.
hosts=$1:1,$2:1
shift 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec orterun -np 2 --host "$hosts" --mca plm_rsh_agent cw_rsh --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include eth1 \
  --mca pml ucx --mca btl self "$@"
END
chmod 755 "$root"/usr/bin/cw_*
pack "$root" "$out"
