# SPDX-License-Identifier: Apache-2.0
# Sourced by mkinitramfs.sh and mkoverlay.sh: puts programs into a root tree together with the libraries that they load.

# put FILE DEST ROOT: copies FILE to ROOT/DEST, follows links, and adds what `ldd` lists, the ELF interpreter included.
put() {
  local src=$1 dst=$3/${2#/} lib
  mkdir -p "$(dirname "$dst")"
  cp -L --preserve=mode "$src" "$dst"
  # Programs with debug information are ten times larger, and a virtual machine keeps every byte of them in memory.
  if head -c 4 "$src" | grep -q ELF; then
    case $src in *.bpf.o | *.ko) return 0 ;; esac
    strip --strip-unneeded "$dst" 2>/dev/null || true
    # ldd fails for a static program, which has nothing to add.
    { ldd "$src" 2>/dev/null | grep -o '/[^ ]*' || true; } | while read -r lib; do
      if [ ! -e "$3$lib" ]; then
        mkdir -p "$3$(dirname "$lib")"
        cp -L --preserve=mode "$lib" "$3$lib"
      fi
    done
  fi
}

# pack ROOT FILE: writes ROOT as a cpio archive that the kernel unpacks (archives may follow one another in an initrd).
pack() {
  (cd "$1" && find . -mindepth 1 | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) >"$2.tmp"
  # The boot loader of QEMU wants the next archive aligned to four bytes; cpio pads to 512 already.
  mv "$2.tmp" "$2"
}
