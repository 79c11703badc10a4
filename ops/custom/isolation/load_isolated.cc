#include "ops/custom/isolation/load_isolated.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/policy/file_verifier.h"
#include "ops/custom/isolation/library_description.h"
#include "ops/custom/isolation/shared_pages.h"
#include "ops/custom/op_library.h"
#include "platform/checksum.h"
#include "platform/mutex.h"
#include "platform/status_macros.h"
#include "tensor/dtype.h"

namespace weft {
namespace {

// A loaded library with all that its ops point at. Lives as long as the process.
struct LibraryApart {
  struct Op {
    IsolatedLibrary* library;
    uint32_t number;
  };
  std::unique_ptr<IsolatedLibrary> library;
  std::unique_ptr<LibraryDescription> description;
  std::deque<Op> ops;
};

struct LibrariesApart {
  Mutex mutex;
  std::map<std::string, std::unique_ptr<LibraryApart>> by_checksum ABSL_GUARDED_BY(mutex);
};

LibrariesApart& AllApart() {
  static auto* const all = new LibrariesApart;
  return *all;
}

// ---- What stands for the functions of a library

double CallApart(LibraryFunction function, const WeftHost* host, WeftCall* call, const void* user) {
  const auto& op = *static_cast<const LibraryApart::Op*>(user);
  double flops = 0;
  const absl::Status status = op.library->Call(function, op.number, *host, *call, &flops);
  if (!status.ok()) host->fail(call, std::string(status.message()).c_str());
  return flops;
}

template <LibraryFunction function>
void FunctionApart(const WeftHost* host, WeftCall* call, const void* user) {
  CallApart(function, host, call, user);
}

StandInFunctions FunctionsApart() {
  StandInFunctions functions;
  functions.infer = FunctionApart<LibraryFunction::kInfer>;
  functions.run_cpu = FunctionApart<LibraryFunction::kCompute>;
  functions.gradient = FunctionApart<LibraryFunction::kGradient>;
  functions.flops = [](const WeftHost* host, WeftCall* call, const void* user) {
    return CallApart(LibraryFunction::kFlops, host, call, user);
  };
  return functions;
}

// Counts the shared memory of a kernel whose function is elsewhere.
class KernelApart final : public Kernel {
 public:
  KernelApart(std::unique_ptr<Kernel> kernel, IsolatedLibrary& library, size_t bytes)
      : kernel_(std::move(kernel)), library_(library), added_bytes_(library.AddKernel(bytes)) {}
  ~KernelApart() override { library_.RemoveKernel(); }
  absl::Status Run(const KernelContext& context) override { return kernel_->Run(context); }
  size_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  size_t retained_bytes() const override { return kernel_->retained_bytes() + added_bytes_; }
  bool depends_on_step() const override { return kernel_->depends_on_step(); }

 private:
  const std::unique_ptr<Kernel> kernel_;
  IsolatedLibrary& library_;
  const size_t added_bytes_;
};

size_t SharedBytes(const PrepareContext& context) {
  size_t bytes = 0;
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (!context.HasInput(i)) continue;
    bytes += IsolatedLibrary::PlaceBytes(
        DTypeBytes(context.InputDType(i), context.InputShape(i).num_elements()));
  }
  for (int i = 0; i < context.num_outputs(); ++i) {
    if (!context.HasOutput(i)) continue;
    bytes += IsolatedLibrary::PlaceBytes(
        DTypeBytes(context.OutputDType(i), context.OutputShape(i).num_elements()));
  }
  return bytes;
}

// ---- Loading

absl::Status RefusedLibrary(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("op library '", path, "': ", std::string(status.message())));
}

// A copy of the file, whose bytes are those that were looked at when it was read.
absl::StatusOr<FileDescriptor> VerifiedCopy(FileSystem& files, const std::string& path,
                                            const OpLibraryFile& file) {
  const std::span<const std::byte> bytes = file.bytes->bytes();
  const std::string copy(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto copied = std::as_bytes(std::span(copy));
  WEFT_RETURN_IF_ERROR(VerifyFile(files, path, copied).status());
  if (absl::StrFormat("%016x", Checksum(copied)) != file.library.checksum) {
    return absl::FailedPreconditionError("the file was changed while it was loaded; try again");
  }
  return SealedFile(std::filesystem::path(path).filename().string(), copied);
}

absl::StatusOr<OpLibrary> Load(FileSystem& files, const std::string& path,
                               const IsolationOptions& options) {
  static const StandInFunctions functions = FunctionsApart();
  WEFT_ASSIGN_OR_RETURN(OpLibraryFile file, ReadOpLibrary(files, path));
  if (file.is_loaded) return file.library;
  WEFT_ASSIGN_OR_RETURN(FileDescriptor image, VerifiedCopy(files, path, file));
  auto apart = std::make_unique<LibraryApart>();
  apart->library = std::make_unique<IsolatedLibrary>(
      std::filesystem::path(path).filename().string(), std::move(image), options);
  WEFT_ASSIGN_OR_RETURN(const std::string description, apart->library->Describe());
  WEFT_ASSIGN_OR_RETURN(apart->description, LibraryDescription::Parse(description, functions));
  for (uint32_t k = 0; k < apart->description->library().num_ops; ++k) {
    apart->description->SetUser(
        k, &apart->ops.emplace_back(LibraryApart::Op{apart->library.get(), k}));
  }
  file.library.is_isolated = true;
  file.library.op_timeout = options.op_timeout;
  IsolatedLibrary& library = *apart->library;
  const auto wrap = [&library](
                        std::unique_ptr<Kernel> kernel,
                        const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    return std::make_unique<KernelApart>(std::move(kernel), library, SharedBytes(context));
  };
  WEFT_RETURN_IF_ERROR(RegisterOpLibrary(apart->description->library(), file.library, wrap));
  LibrariesApart& all = AllApart();
  MutexLock lock(all.mutex);
  all.by_checksum[file.library.checksum] = std::move(apart);
  return file.library;
}

}  // namespace

absl::StatusOr<OpLibrary> LoadIsolatedOpLibrary(FileSystem& files, const std::string& path,
                                                const IsolationOptions& options) {
  absl::StatusOr<OpLibrary> library = Load(files, path, options);
  return library.ok() ? std::move(library) : RefusedLibrary(path, library.status());
}

IsolatedLibrary* FindIsolatedLibrary(const std::string& checksum) {
  LibrariesApart& all = AllApart();
  MutexLock lock(all.mutex);
  const auto found = all.by_checksum.find(checksum);
  return found == all.by_checksum.end() ? nullptr : found->second->library.get();
}

}  // namespace weft
