// Libraries of custom ops (ops/custom_op.h): loading them makes their ops known to this process.
#ifndef WEFT_OPS_CUSTOM_OP_LIBRARY_H_
#define WEFT_OPS_CUSTOM_OP_LIBRARY_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ops/custom/loaded_libraries.h"
#include "ops/custom_op.h"
#include "ops/kernel.h"
#include "platform/file_system.h"

namespace weft {

// Loads a shared library, compares the ABI versions, checks what it declares, and registers its ops
// in OpRegistry::Global() and their kernels in KernelRegistry::Global(), those alone that the
// process's policy allows (graph/policy/operator_policy.h). Never unloaded. The same
// content again changes nothing. A library is code of the user's that runs in this process: whoever
// can write it can do what the process can do. Call it before the first model is read, from one
// thread at a time.
//
// It is loaded in a copy of the process first (trial_load.h): one that throws, crashes, ends the
// process or takes longer than `patience` while it is loaded is InvalidArgument.
//
// PermissionDenied for a file that the process's verifier does not answer for
// (graph/policy/file_verifier.h). NotFound or InvalidArgument (no library, another ABI version, a
// declaration that cannot be); AlreadyExists when an op of the same name is there;
// FailedPrecondition when the file is changed meanwhile. Nothing is registered then.
absl::StatusOr<OpLibrary> LoadOpLibrary(FileSystem& files, const std::string& path,
                                        absl::Duration patience = absl::Seconds(10));

// ---- The parts of it, for libraries that run apart (ops/custom/isolation).

// The file of a library before anything of it runs: path and checksum are filled in.
struct OpLibraryFile {
  std::shared_ptr<const MappedFile> bytes;
  OpLibrary library;
  bool is_loaded = false;  // the same content was loaded before: `library` is that one
};
// Errors as of LoadOpLibrary, without the file's name.
absl::StatusOr<OpLibraryFile> ReadOpLibrary(FileSystem& files, const std::string& path);

// Loads it into this process and compares the versions: code of it runs. What is returned lives as
// long as the process. InvalidArgument for one that does not fit.
absl::StatusOr<const WeftOpLibrary*> OpenOpLibrary(const std::string& path);

// What becomes of each kernel of a library; null: nothing.
using KernelWrapper = std::function<absl::StatusOr<std::unique_ptr<Kernel>>(
    std::unique_ptr<Kernel> kernel, const PrepareContext& context)>;

// Checks what a library declares, and makes what of it the policy allows known to this process;
// fills in the names of `library`. `description` must live as long as the process, and need not be
// trusted but for its pointers and counts. Nothing is registered after an error.
absl::Status RegisterOpLibrary(const WeftOpLibrary& description, OpLibrary& library,
                               const KernelWrapper& wrapper = nullptr);

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_OP_LIBRARY_H_
