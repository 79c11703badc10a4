// The version of NVIDIA's driver, as its kernel module says it.
#ifndef WEFT_TENSOR_CUDA_DRIVER_VERSION_H_
#define WEFT_TENSOR_CUDA_DRIVER_VERSION_H_

#include <string>

#include "platform/file_system.h"

namespace weft {

// "580.65.06" of /proc/driver/nvidia/version; "" where there is no such module, and where the file
// says no version. Thread-safe.
std::string NvidiaDriverVersion(FileSystem& files);

}  // namespace weft

#endif  // WEFT_TENSOR_CUDA_DRIVER_VERSION_H_
