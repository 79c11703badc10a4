// Libraries of custom ops (ops/custom_op.h): loading them makes their ops known to this process.
#ifndef WEFT_OPS_CUSTOM_OP_LIBRARY_H_
#define WEFT_OPS_CUSTOM_OP_LIBRARY_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ops/custom/loaded_libraries.h"
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

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_OP_LIBRARY_H_
