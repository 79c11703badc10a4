// The helper process of an op library: loads it, confined, and runs its functions for a worker.
#ifndef WEFT_OPS_CUSTOM_ISOLATION_OP_HELPER_H_
#define WEFT_OPS_CUSTOM_ISOLATION_OP_HELPER_H_

namespace weft {

// The first argument of a program that shall be a helper; the second is the id of its parent. Not
// for people: no help shows it.
inline constexpr char kOpHelperArgument[] = "--serve-op-library";

// What a helper has open when it starts, besides /dev/null as its standard streams.
inline constexpr int kHelperChannel = 3;  // to its parent
inline constexpr int kHelperImage = 4;    // the library

// For main, before all else: whether the process was started as a helper.
bool IsOpHelper(int argc, char** argv);

// Confines the process (confinement.h), loads the library, and answers calls until the parent
// closes the channel or ends. Returns the exit code; the library may end the process before.
int RunOpHelper(char** argv);

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_ISOLATION_OP_HELPER_H_
