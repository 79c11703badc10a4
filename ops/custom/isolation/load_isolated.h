// Loads libraries of custom ops whose code runs apart.
#ifndef WEFT_OPS_CUSTOM_ISOLATION_LOAD_ISOLATED_H_
#define WEFT_OPS_CUSTOM_ISOLATION_LOAD_ISOLATED_H_

#include <string>

#include "absl/status/statusor.h"
#include "ops/custom/isolation/isolated_library.h"
#include "ops/custom/loaded_libraries.h"
#include "platform/file_system.h"

namespace weft {

// As LoadOpLibrary (ops/custom/op_library.h), but no code of the library runs in this process: its
// shape functions, kernels for CPUs, gradients and costs run in a helper process, confined
// (confinement.h). The library is read once, into memory that nobody can change: every helper gets
// the bytes that were verified.
//
// A function that ends its helper, or takes longer than the options say, is an error of its node;
// the next call starts another helper. Results are those of LoadOpLibrary, to the bit, of functions
// that depend on nothing but their operands. Kernels for GPUs are left out.
//
// Errors as of LoadOpLibrary. FailedPrecondition where the system cannot confine a helper.
absl::StatusOr<OpLibrary> LoadIsolatedOpLibrary(FileSystem& files, const std::string& path,
                                                const IsolationOptions& options);

// The helper of a library that LoadIsolatedOpLibrary has loaded, by its checksum; null: not known.
// Lives as long as the process.
IsolatedLibrary* FindIsolatedLibrary(const std::string& checksum);

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_ISOLATION_LOAD_ISOLATED_H_
