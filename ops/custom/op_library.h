// Libraries of custom ops (ops/custom_op.h): loading them makes their ops known to this process.
#ifndef WEFT_OPS_CUSTOM_OP_LIBRARY_H_
#define WEFT_OPS_CUSTOM_OP_LIBRARY_H_

#include <string>

#include "absl/status/statusor.h"
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
// PermissionDenied for a file that the process's verifier does not answer for
// (graph/policy/file_verifier.h); the system opens it once more to load it, so who can replace it
// in between can load another. NotFound or InvalidArgument (no library, another ABI version, a
// declaration that cannot be); AlreadyExists when an op of the same name is there. Nothing is
// registered then.
absl::StatusOr<OpLibrary> LoadOpLibrary(FileSystem& files, const std::string& path);

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_OP_LIBRARY_H_
