# Cross build for AArch64 on Debian: g++-aarch64-linux-gnu, with zlib1g-dev:arm64 and liblzma-dev:arm64; tests run under qemu-user.
# It shows that everything builds and runs there, not how that hardware orders memory: qemu keeps the order of this machine.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
# Static programs: under qemu-user 7.2 a dynamic one hangs as soon as it makes a thread, an empty std::thread even.
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(ZLIB_LIBRARY /usr/lib/aarch64-linux-gnu/libz.a CACHE FILEPATH "of zlib1g-dev:arm64")
set(LIBLZMA_LIBRARY /usr/lib/aarch64-linux-gnu/liblzma.a CACHE FILEPATH "of liblzma-dev:arm64")
