#include "ops/custom/isolation/op_helper.h"

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "ops/custom/isolation/confinement.h"
#include "ops/custom/isolation/helper_call.h"
#include "ops/custom/isolation/library_description.h"
#include "ops/custom/op_library.h"
#include "platform/process.h"

namespace weft {
namespace {

// Of this process, for the handler of what nobody catches.
HelperEnd* end_of_helper = nullptr;

// The worker hears of it before the process ends as it would.
[[noreturn]] void SayWhatWasThrown() {
  if (const std::exception_ptr thrown = std::current_exception(); thrown != nullptr) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
      end_of_helper->Send(HelperFrame::kThrew, error.what());
    } catch (...) {
      end_of_helper->Send(HelperFrame::kThrew, "");
    }
  }
  std::abort();
}

// As if this program did nothing about them: how the process ends says what happened. (The run time
// of a sanitizer would end it with an exit code.)
void LeaveSignalsToSystem() {
  for (const int fatal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) signal(fatal, SIG_DFL);
}

absl::StatusOr<const WeftOpLibrary*> LoadConfined(std::string_view parent) {
  int64_t id = 0;
  if (!absl::SimpleAtoi(absl::string_view(parent.data(), parent.size()), &id)) {
    return absl::InvalidArgumentError("the helper of an op library is started by a worker alone");
  }
  absl::Status status = DieWithParent(id);
  if (status.ok()) status = ConfineThisProcess(FoldersOf(std::getenv("LD_LIBRARY_PATH")));
  if (!status.ok()) return status;
  const std::string path = absl::StrCat("/proc/self/fd/", kHelperImage);
  absl::StatusOr<const WeftOpLibrary*> library = OpenOpLibrary(path);
  if (library.ok()) return library;
  const std::string message(library.status().message());
  return absl::Status(library.status().code(),
                      absl::StrReplaceAll(message, {{path + ": ", ""}, {path, "the library"}}));
}

void Refuse(HelperEnd& end, const absl::Status& status) {
  MessageWriter refusal;
  refusal.Number(static_cast<int32_t>(status.code()));
  refusal.Text(std::string_view(status.message().data(), status.message().size()));
  end.Send(HelperFrame::kRefused, refusal.bytes());
}

// Whether the library has such a function.
bool HasFunction(const WeftOpLibrary& library, const CallMessage& call) {
  if (call.op >= library.num_ops) return false;
  const WeftOpDescriptor& op = library.ops[call.op];
  switch (call.function) {
    case LibraryFunction::kInfer:
      return op.infer != nullptr;
    case LibraryFunction::kCompute:
      return op.run_cpu != nullptr;
    case LibraryFunction::kGradient:
      return op.gradient != nullptr;
    default:
      return op.flops != nullptr;
  }
}

}  // namespace

bool IsOpHelper(int argc, char** argv) {
  return argc == 3 && std::string_view(argv[1]) == kOpHelperArgument;
}

int RunOpHelper(char** argv) {
  // Lives as long as the process: threads of the library may still run when main returns.
  auto* const end = new HelperEnd(FileDescriptor(kHelperChannel));
  end_of_helper = end;
  LeaveSignalsToSystem();
  std::set_terminate(&SayWhatWasThrown);
  const absl::StatusOr<const WeftOpLibrary*> library = LoadConfined(argv[2]);
  if (!library.ok()) {
    Refuse(*end, library.status());
    return EXIT_FAILURE;
  }
  LeaveSignalsToSystem();
  end->Send(HelperFrame::kDescription, DescribeLibrary(**library));
  end->SetServer([end, &loaded = **library](std::string_view payload) {
    absl::StatusOr<CallMessage> message = DecodeCall(payload);
    if (!message.ok() || !HasFunction(loaded, *message)) return false;
    HelperCall call(*end, *std::move(message));
    call.Serve(loaded.ops[call.op()]);
    return true;
  });
  while (true) {
    const ReceivedFrame frame = end->Receive();
    end->DropOldMappings();
    if (frame.kind != HelperFrame::kCall || !end->Serve(frame.payload)) return EXIT_FAILURE;
  }
}

}  // namespace weft
