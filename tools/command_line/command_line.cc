#include "tools/command_line/command_line.h"

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <ostream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "graph/policy/file_verifier.h"
#include "graph/policy/operator_policy.h"
#include "graph/schema_lookup.h"
#include "onnx_import/model_file.h"
#include "ops/custom/isolation/load_isolated.h"
#include "ops/custom/op_library.h"
#include "platform/file_system.h"
#include "platform/log.h"
#include "platform/mapped_pages.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"
#include "tools/command_line/help_text.h"
#include "tools/console/version.h"
#include "tools/flags/job_file.h"
#include "tools/flags/options.h"
#include "tools/flags/pattern_list.h"
#include "tools/flags/renamed_flags.h"
#include "tools/signing/ed25519_key.h"
#include "tools/signing/signature.h"

namespace weft {
namespace {

// An error is a paragraph. What quotes a file at length keeps its beginning and its end.
std::string AsParagraph(const std::string& text) {
  constexpr size_t kHead = 2400;
  constexpr size_t kTail = 800;
  if (text.size() <= kHead + kTail) return text;
  return absl::StrCat(text.substr(0, kHead), " [", text.size() - kHead - kTail,
                      " characters left out] ", text.substr(text.size() - kTail));
}

int Fail(const absl::Status& status, const std::string& hint, Console& console) {
  *console.err << "error: " << AsParagraph(Printable(std::string(status.message()))) << "\n"
               << hint;
  console.err->flush();
  return static_cast<int>(ExitCodeOf(status));
}

int FailUsage(const std::string& message, const std::string& command, Console& console) {
  const std::string hint =
      absl::StrCat("  help: graph_runner ", command, command.empty() ? "" : " ", "--help\n");
  return Fail(UsageError(message), hint, console);
}

// "--input" of "--input=x", "-o" of "-o"; empty for what is no flag (a number, a path, "-").
std::string FlagName(const std::string& argument) {
  if (argument.size() < 2 || argument[0] != '-') return "";
  if (argument[1] == '-') return argument.substr(0, argument.find('='));
  const bool is_number = argument[1] == '.' || (argument[1] >= '0' && argument[1] <= '9');
  return is_number ? "" : argument.substr(0, 2);
}

// The first flag that the command does not know, with the one that may be meant; empty when all are
// known.
std::string UnknownFlag(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    const std::string flag = FlagName(argument);
    if (flag.empty() || app.get_option_no_throw(flag) != nullptr) continue;
    if (const std::string now = RenamedTo(flag); !now.empty()) {
      return absl::StrCat("option '", flag, "' is now called ", now);
    }
    std::vector<std::string> known;
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
    return absl::StrCat("unknown option '", flag, "'", DidYouMean(flag, known));
  }
  return "";
}

// "--help" and its kin among the arguments, or nothing.
enum class HelpRequest { kNone, kShort, kAll };
HelpRequest RequestedHelp(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (argument == "--help=all") return HelpRequest::kAll;
    if (argument == "--help" || argument == "-h") return HelpRequest::kShort;
  }
  return HelpRequest::kNone;
}

// Fills the command's members from the flags; the text of what is wrong, or "".
std::string Parse(CLI::App& app, const std::vector<std::string>& arguments) {
  std::string unknown = UnknownFlag(app, arguments);
  if (!unknown.empty()) return unknown;
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

// Options that commands have without declaring them.
struct CommonFlags {
  std::vector<std::string> op_libraries;
  bool isolate_ops = false;
  std::optional<double> op_timeout;  // seconds
  std::vector<std::string> allowed_ops;
  std::vector<std::string> denied_ops;
  std::vector<std::string> keys;
  int64_t max_nodes = ModelFile::kUsualMaxNodes;
  bool print_job = false;
  std::string log_level = "error";
};

void AddCommonOptions(const Command& command, CLI::App& app, CommonFlags& flags) {
  if (command.reads_models()) {
    app.add_option("--op_library,--op-library", flags.op_libraries,
                   "a shared library of custom ops (docs/custom-ops.md); may be repeated")
        ->type_name("FILE.so")
        ->group(kTrustOptions);
    app.add_flag(
           "--isolate-ops", flags.isolate_ops,
           "run the code of op libraries in processes of their own, which have no network and "
           "write no file: one that crashes is an error of its node. For workers that the "
           "command starts, too; others have the flag themselves")
        ->group(kTrustOptions);
    app.add_option(
           "--op-timeout", flags.op_timeout,
           "with --isolate-ops, how long one call of a library's function may take: 0 is as "
           "long as it wants (default 60)")
        ->type_name("SECONDS")
        ->check(CLI::Range(0.0, 1e6))
        ->group(kTrustOptions);
    app.add_option("--allow-ops", flags.allowed_ops,
                   "the only operators that models may have: NAME, for ONNX's own, DOMAIN::NAME or "
                   "patterns of them with * and ?, or @FILE with a line each; may be repeated. A "
                   "worker asks for all nodes of its part, those that training adds too")
        ->type_name("PATTERN")
        ->group(kTrustOptions);
    app.add_option("--deny-ops", flags.denied_ops,
                   "operators that models may not have, whatever is allowed; patterns as for "
                   "--allow-ops. Those of op libraries are then not known")
        ->type_name("PATTERN")
        ->group(kTrustOptions);
    app.add_option(
           "--require-signature", flags.keys,
           "take models, their external data, checkpoints and op libraries with a signature "
           "of this Ed25519 key alone (ckpt sign makes them); may be repeated: one is enough")
        ->type_name("PUBLIC.pem")
        ->group(kTrustOptions);
    app.add_option("--max-nodes", flags.max_nodes,
                   "most nodes that a model may have, with those of its functions (default 100000)")
        ->type_name("N")
        ->check(AtLeastOne)
        ->group(kTrustOptions);
  }
  AddLogLevel(app, flags.log_level);
  if (command.reads_models()) AddJobFile(app, flags.print_job);
}

// Lets the model stand behind any option: an option that may be repeated takes one value each time.
void TakeOneValueEachTime(CLI::App& app) {
  for (CLI::Option* const option : app.get_options()) {
    if (!option->get_positional()) option->allow_extra_args(false);
  }
}

// Before any library: the policy says what is registered of it.
absl::Status SetPolicy(const CommonFlags& flags) {
  FileSystem& files = RealFileSystem();
  WEFT_ASSIGN_OR_RETURN(const auto allowed,
                        ReadPatternList(files, "--allow-ops", flags.allowed_ops));
  WEFT_ASSIGN_OR_RETURN(const auto denied, ReadPatternList(files, "--deny-ops", flags.denied_ops));
  WEFT_ASSIGN_OR_RETURN(OperatorPolicy policy, OperatorPolicy::Create(allowed, denied));
  SetOperatorPolicy(std::move(policy));
  ModelFile::SetMaxNodes(flags.max_nodes);
  std::vector<VerifyingKey> keys;
  for (const std::string& path : flags.keys) {
    auto key = VerifyingKey::Read(files, path);
    if (!key.ok()) return Annotate(key.status(), "--require-signature");
    keys.push_back(*std::move(key));
  }
  SetFileVerifier(keys.empty() ? nullptr
                               : std::make_shared<const SignatureVerifier>(std::move(keys)));
  return absl::OkStatus();
}

absl::Status LoadOpLibraries(const CommonFlags& flags) {
  if (flags.op_timeout.has_value() && !flags.isolate_ops) {
    return UsageError(
        "--op-timeout: only a library that runs apart can be ended; add --isolate-ops");
  }
  IsolationOptions isolation;
  if (flags.op_timeout.has_value()) isolation.op_timeout = absl::Seconds(*flags.op_timeout);
  for (const std::string& path : flags.op_libraries) {
    const auto library = flags.isolate_ops
                             ? LoadIsolatedOpLibrary(RealFileSystem(), path, isolation)
                             : LoadOpLibrary(RealFileSystem(), path);
    if (!library.ok()) return WithExitCode(library.status(), ExitCode::kPlan);
  }
  return absl::OkStatus();
}

// A pattern with a slip denies nothing.
void NoteUnmatchedPatterns(Console& console) {
  if (CurrentOperatorPolicy().allows_all()) return;
  std::vector<std::string> known;
  for (const OpSchema* schema : OpRegistry::Global().All()) {
    known.push_back(FullOpName(schema->domain(), schema->name()));
  }
  for (const OpLibrary& library : LoadedOpLibraries()) {
    known.insert(known.end(), library.forbidden.begin(), library.forbidden.end());
  }
  for (const std::string& pattern : CurrentOperatorPolicy().Unmatched(known)) {
    *console.err << "note: " << pattern
                 << " fits no operator that is known; see graph_runner ops\n";
  }
}

int RunCommand(Command& command, const std::vector<std::string>& arguments, Console& console) {
  CLI::App app;
  app.set_help_flag();
  app.option_defaults()->group(kMainOptions);
  command.AddOptions(app);
  CommonFlags flags;
  AddCommonOptions(command, app, flags);
  TakeOneValueEachTime(app);
  const HelpRequest help = RequestedHelp(arguments);
  if (help != HelpRequest::kNone) {
    *console.out << (help == HelpRequest::kAll ? FullHelp(command, app) : ShortHelp(command, app));
    return 0;
  }
  const std::string wrong = Parse(app, arguments);
  if (!wrong.empty()) return FailUsage(wrong, command.name(), console);
  if (flags.print_job) {
    *console.out << JobFileText(app);
    return 0;
  }
  SetLogLevel(*ParseLogLevel(flags.log_level));
  SetLogName(command.name());
  const absl::Status policy = WithExitCode(SetPolicy(flags), ExitCode::kUsage);
  if (!policy.ok()) return Fail(policy, "", console);
  const absl::Status loaded = LoadOpLibraries(flags);
  if (!loaded.ok()) return Fail(loaded, "", console);
  NoteUnmatchedPatterns(console);
  absl::StatusOr<ExitCode> result = command.Run(console);
  console.out->flush();
  // Also where it ended well: it has read zeros.
  if (const absl::Status whole = CheckMappedFiles(); !whole.ok()) result = whole;
  if (!result.ok()) {
    const bool usage = ExitCodeOf(result.status()) == ExitCode::kUsage;
    const std::string hint = absl::StrCat("  help: graph_runner ", command.name(), " --help\n");
    return Fail(result.status(), usage ? hint : "", console);
  }
  if (!*console.out) {
    return Fail(
        WithExitCode(absl::UnknownError("standard output cannot be written: is the disk full?"),
                     ExitCode::kDisk),
        "", console);
  }
  return static_cast<int>(*result);
}

}  // namespace

std::vector<std::unique_ptr<Command>> AllCommands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(NewExampleCommand());
  commands.push_back(NewInspectCommand());
  commands.push_back(NewCheckCommand());
  commands.push_back(NewPlanCommand());
  commands.push_back(NewSimulateCommand());
  commands.push_back(NewCalibrateCommand());
  commands.push_back(NewVerifyCommand());
  commands.push_back(NewTrainCommand());
  commands.push_back(NewEvalCommand());
  commands.push_back(NewCkptCommand());
  commands.push_back(NewRunCommand());
  commands.push_back(NewWorkerCommand());
  commands.push_back(NewClusterCommand());
  commands.push_back(NewChaosCommand());
  commands.push_back(NewConformanceCommand());
  commands.push_back(NewDoctorCommand());
  commands.push_back(NewOpsCommand());
  commands.push_back(NewOpCommand());
  return commands;
}

int RunCommandLine(const std::vector<std::string>& arguments, Console& console) {
  const std::vector<std::unique_ptr<Command>> commands = AllCommands();
  if (arguments.empty()) {
    *console.err << OverviewHelp(commands);
    return static_cast<int>(ExitCode::kUsage);
  }
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "--help=all" || name == "help") {
    *console.out << OverviewHelp(commands);
    return 0;
  }
  if (name == "--version") {
    *console.out << kVersion << "\n";
    return 0;
  }
  std::vector<std::string> names;
  for (const auto& command : commands) {
    if (command->name() != name) {
      names.push_back(command->name());
      continue;
    }
    try {
      return RunCommand(*command, {arguments.begin() + 1, arguments.end()}, console);
    } catch (const std::bad_alloc&) {
      return Fail(absl::ResourceExhaustedError("this machine has no more memory to give"), "",
                  console);
    }
  }
  const std::string kind = absl::StartsWith(name, "-") ? "option" : "command";
  return FailUsage(absl::StrCat("unknown ", kind, " '", name, "'", DidYouMean(name, names)), "",
                   console);
}

}  // namespace weft
