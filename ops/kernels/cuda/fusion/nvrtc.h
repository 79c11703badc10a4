// NVRTC, NVIDIA's compiler in a library, by the functions that an open one has.
#ifndef WEFT_OPS_KERNELS_CUDA_FUSION_NVRTC_H_
#define WEFT_OPS_KERNELS_CUDA_FUSION_NVRTC_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/kernels/cuda/fusion/standard_headers.h"

namespace weft::cuda {

// What NVRTC made of a text. A value.
struct CompiledText {
  std::string cubin;
  std::string log;  // warnings, and what ptxas says of registers and spills
};

// Needs no GPU and no headers of CUDA. Thread-safe, as NVRTC is.
class Nvrtc {
 public:
  // A function of the library by name, or why there is none.
  using Symbols = std::function<absl::StatusOr<void*>(const std::string& name)>;

  // The errors of `symbols`; Internal where the library does not say its version.
  static absl::StatusOr<std::unique_ptr<Nvrtc>> Open(const Symbols& symbols);

  // "13.0".
  const std::string& version() const { return version_; }
  // All that the result depends on besides text and headers: options and version.
  std::string KeyOf(int major, int minor) const;

  // For cards of this compute capability. Internal with NVRTC's log where it refuses the text.
  absl::StatusOr<CompiledText> Compile(const std::string& text,
                                       const std::vector<TextHeader>& headers, int major,
                                       int minor) const;

 private:
  // Of nvrtc.h: a program is a handle, a result a number, 0 for success.
  struct Functions {
    int (*version)(int* major, int* minor) = nullptr;
    const char* (*error_string)(int result) = nullptr;
    int (*create)(void** program, const char* text, const char* name, int headers,
                  const char* const* texts, const char* const* names) = nullptr;
    int (*destroy)(void** program) = nullptr;
    int (*compile)(void* program, int count, const char* const* options) = nullptr;
    int (*log_size)(void* program, size_t* bytes) = nullptr;
    int (*log)(void* program, char* log) = nullptr;
    int (*cubin_size)(void* program, size_t* bytes) = nullptr;
    int (*cubin)(void* program, char* cubin) = nullptr;
  };
  explicit Nvrtc(const Functions& functions) : functions_(functions) {}

  std::string LogOf(void* program) const;
  absl::Status Failed(const char* call, int result, const std::string& log) const;

  const Functions functions_;
  std::string version_;
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_FUSION_NVRTC_H_
