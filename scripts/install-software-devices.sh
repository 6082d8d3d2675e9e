#!/usr/bin/env bash
# Installs real drivers that need no GPU (Debian 12 or newer, as root), so that the gate has devices to compare.
# Says what it does, and can be run twice. With names as arguments, installs only those.
set -euo pipefail

declare -A packages=(
    [lavapipe]="mesa-vulkan-drivers libvulkan1"  # Vulkan on the CPU; also llvmpipe for OpenGL
    [llvmpipe]="mesa-vulkan-drivers libegl1 libgles2 libgl1-mesa-dri"
    [swiftshader]="chromium"                     # ships Google's Vulkan on the CPU
    [pocl]="pocl-opencl-icd"
    [rusticl]="mesa-opencl-icd"
    [oclgrind]="oclgrind"
    [hiprtc]="libamdhip64-5 libhiprtc-builtins5" # AMD's compiler for the CUDA sources, compile-only
    [g++]="g++"
    [clang++]="clang-15 libclang-common-15-dev"  # with its sanitizers
)
order=(lavapipe llvmpipe swiftshader pocl rusticl oclgrind hiprtc g++ clang++)

wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || wanted=("${order[@]}")
names=()
for device in "${wanted[@]}"; do
    if [ -z "${packages[$device]:-}" ]; then
        echo "install-software-devices: unknown device '$device'; there are: ${order[*]}" >&2
        exit 2
    fi
    echo "$device: ${packages[$device]}"
    # shellcheck disable=SC2206  # several package names, split on purpose
    names+=(${packages[$device]})
done
if [ "$(id -u)" -ne 0 ]; then
    echo "install-software-devices: must run as root (try sudo)" >&2
    exit 2
fi

missing=()
for name in "${names[@]}"; do
    dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || missing+=("$name")
done
if [ ${#missing[@]} -eq 0 ]; then
    echo "all there already"
    exit 0
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -y -q --no-install-recommends "${missing[@]}"
echo "done; 'samebits devices' lists what works now"
