#include "ops/kernels/cuda/fusion/nvrtc_compiler.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/fusion/body_headers.h"
#include "platform/checksum.h"
#include "platform/status_macros.h"
#include "tensor/cuda/cuda_status.h"

namespace weft::cuda {
namespace {

// Ours, and what stands for the standard library's.
const std::vector<TextHeader>& HeadersOfTexts() {
  static const auto* const headers = [] {
    auto* const all = new std::vector<TextHeader>(BodyHeaders());
    for (TextHeader& header : StandardHeaders()) all->push_back(std::move(header));
    return all;
  }();
  return *headers;
}

// Of names and texts, each with its length.
std::string HeadersKey() {
  std::string all;
  for (const TextHeader& header : HeadersOfTexts()) {
    absl::StrAppend(&all, header.name.size(), ":", header.name, header.text.size(), ":",
                    header.text);
  }
  const uint64_t checksum = Checksum(std::as_bytes(std::span<const char>(all.data(), all.size())));
  return absl::StrCat("headers ", absl::Hex(checksum, absl::kZeroPad16), " of ", all.size());
}

class LoadedKernel final : public GeneratedKernel {
 public:
  LoadedKernel(const NvrtcCompilerOptions& options, CudaCodeHandle code)
      : runtime_(*options.runtime), make_current_(options.make_current), code_(code) {}
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;
  ~LoadedKernel() override {
    make_current_().IgnoreError();  // a card that failed has no code any more
    runtime_.UnloadCode(code_);
  }

  CudaCode Find() { return runtime_.FindKernel(code_, kGeneratedKernel, &kernel_); }

  int Launch(LaunchQueue queue, const LaunchGrid& grid,
             const GeneratedArguments& arguments) override {
    return static_cast<int>(runtime_.LaunchKernel(kernel_, grid.blocks, grid.threads, &arguments,
                                                  sizeof(arguments), queue.stream));
  }

 private:
  CudaRuntime& runtime_;
  const std::function<absl::Status()> make_current_;
  const CudaCodeHandle code_;
  CudaKernelHandle kernel_ = nullptr;
};

}  // namespace

absl::StatusOr<std::shared_ptr<GeneratedKernel>> NvrtcCompiler::Load(const std::string& cubin) {
  const auto status = [&](CudaCode code, const char* action) {
    return CudaStatus(*options_.runtime, code, "a generated kernel", action);
  };
  WEFT_RETURN_IF_ERROR(options_.make_current());
  CudaCodeHandle code = nullptr;
  WEFT_RETURN_IF_ERROR(status(options_.runtime->LoadCode(cubin.data(), &code), "load its code"));
  const auto kernel = std::make_shared<LoadedKernel>(options_, code);
  WEFT_RETURN_IF_ERROR(status(kernel->Find(), "find its function"));
  return kernel;
}

std::string NvrtcCompiler::KeyOf(const std::string& text) const {
  static const auto* const headers = new std::string(HeadersKey());
  return absl::StrCat(options_.nvrtc->KeyOf(options_.major, options_.minor), "\n", *headers, "\n",
                      text);
}

std::shared_ptr<GeneratedKernel> NvrtcCompiler::FromCache(const std::string& key) {
  if (options_.cache == nullptr) return nullptr;
  const std::optional<std::string> cubin = options_.cache->Find(key);
  if (!cubin.has_value()) return nullptr;
  absl::StatusOr<std::shared_ptr<GeneratedKernel>> kernel = Load(*cubin);
  return kernel.ok() ? *std::move(kernel) : nullptr;
}

absl::StatusOr<std::shared_ptr<GeneratedKernel>> NvrtcCompiler::Compile(const std::string& text) {
  const MutexLock lock(mutex_);
  std::weak_ptr<GeneratedKernel>& known = kernels_[text];
  if (std::shared_ptr<GeneratedKernel> kernel = known.lock()) return kernel;
  const std::string key = options_.cache == nullptr ? "" : KeyOf(text);
  if (std::shared_ptr<GeneratedKernel> kernel = FromCache(key)) {
    known = kernel;
    return kernel;
  }
  WEFT_ASSIGN_OR_RETURN(
      const CompiledText compiled,
      options_.nvrtc->Compile(text, HeadersOfTexts(), options_.major, options_.minor));
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<GeneratedKernel> kernel, Load(compiled.cubin));
  if (options_.cache != nullptr) options_.cache->Store(key, compiled.cubin);
  known = kernel;
  return kernel;
}

}  // namespace weft::cuda
