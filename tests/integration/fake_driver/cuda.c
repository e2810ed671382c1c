// A libcuda.so.1 that tells that it was opened: by making the file that FAKE_CUDA_MARK names.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void leave_a_mark(void) {
  const char* const path = getenv("FAKE_CUDA_MARK");
  if (path != NULL) close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

int cuInit(unsigned int flags) {
  (void)flags;
  return 100;  // CUDA_ERROR_NO_DEVICE
}
