#include "ops/kernels/cuda/fusion/nvrtc.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

std::vector<std::string> NvrtcOptions(int major, int minor) {
  return {"--std=c++20", "-default-device", absl::StrCat("--gpu-architecture=sm_", major, minor),
          "--ptxas-options=-v"};
}

template <typename Function>
absl::Status BindFunction(const Nvrtc::Symbols& symbols, const char* name, Function** function) {
  const absl::StatusOr<void*> symbol = symbols(name);
  if (symbol.ok()) *function = reinterpret_cast<Function*>(*symbol);
  return symbol.status();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Nvrtc>> Nvrtc::Open(const Symbols& symbols) {
  Functions functions;
  WEFT_RETURN_IF_ERROR(BindFunction(symbols, "nvrtcVersion", &functions.version));
  WEFT_RETURN_IF_ERROR(BindFunction(symbols, "nvrtcGetErrorString", &functions.error_string));
  WEFT_RETURN_IF_ERROR(BindFunction(symbols, "nvrtcCreateProgram", &functions.create));
  WEFT_RETURN_IF_ERROR(BindFunction(symbols, "nvrtcDestroyProgram", &functions.destroy));
  WEFT_RETURN_IF_ERROR(BindFunction(symbols, "nvrtcCompileProgram", &functions.compile));
  WEFT_RETURN_IF_ERROR(BindFunction(symbols, "nvrtcGetProgramLogSize", &functions.log_size));
  WEFT_RETURN_IF_ERROR(BindFunction(symbols, "nvrtcGetProgramLog", &functions.log));
  WEFT_RETURN_IF_ERROR(BindFunction(symbols, "nvrtcGetCUBINSize", &functions.cubin_size));
  WEFT_RETURN_IF_ERROR(BindFunction(symbols, "nvrtcGetCUBIN", &functions.cubin));
  auto nvrtc = std::unique_ptr<Nvrtc>(new Nvrtc(functions));
  int major = 0;
  int minor = 0;
  if (const int result = functions.version(&major, &minor); result != 0) {
    return nvrtc->Failed("nvrtcVersion", result, "");
  }
  nvrtc->version_ = absl::StrCat(major, ".", minor);
  return nvrtc;
}

std::string Nvrtc::KeyOf(int major, int minor) const {
  return absl::StrCat("NVRTC ", version_, " ", absl::StrJoin(NvrtcOptions(major, minor), " "));
}

absl::Status Nvrtc::Failed(const char* call, int result, const std::string& log) const {
  return absl::InternalError(absl::StrCat("NVRTC ", version_, ": ", call, " fails with ", result,
                                          " (", functions_.error_string(result), ")",
                                          log.empty() ? "" : ":\n", log));
}

std::string Nvrtc::LogOf(void* program) const {
  size_t bytes = 0;
  if (functions_.log_size(program, &bytes) != 0 || bytes <= 1) return "";
  std::string log(bytes, '\0');
  if (functions_.log(program, log.data()) != 0) return "";
  log.resize(bytes - 1);  // without the end of the C string
  return log;
}

absl::StatusOr<CompiledText> Nvrtc::Compile(const std::string& text,
                                            const std::vector<TextHeader>& headers, int major,
                                            int minor) const {
  std::vector<const char*> texts;
  std::vector<const char*> names;
  for (const TextHeader& header : headers) {
    texts.push_back(header.text.c_str());
    names.push_back(header.name.c_str());
  }
  void* made = nullptr;
  if (const int result =
          functions_.create(&made, text.c_str(), "region.cu", static_cast<int>(headers.size()),
                            texts.data(), names.data());
      result != 0) {
    return Failed("nvrtcCreateProgram", result, "");
  }
  const auto destroy = [this](void* program) { functions_.destroy(&program); };
  const std::unique_ptr<void, decltype(destroy)> program(made, destroy);
  const std::vector<std::string> options = NvrtcOptions(major, minor);
  std::vector<const char*> option_texts;
  for (const std::string& option : options) option_texts.push_back(option.c_str());
  const int compiled =
      functions_.compile(program.get(), static_cast<int>(option_texts.size()), option_texts.data());
  CompiledText result;
  result.log = LogOf(program.get());
  if (compiled != 0) return Failed("nvrtcCompileProgram", compiled, result.log);
  size_t bytes = 0;
  if (const int code = functions_.cubin_size(program.get(), &bytes); code != 0) {
    return Failed("nvrtcGetCUBINSize", code, result.log);
  }
  result.cubin.resize(bytes);
  if (const int code = functions_.cubin(program.get(), result.cubin.data()); code != 0) {
    return Failed("nvrtcGetCUBIN", code, result.log);
  }
  return result;
}

}  // namespace weft::cuda
