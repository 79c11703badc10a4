#include "tensor/cuda/cuda_libraries.h"

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "platform/mutex.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Versions as the libraries themselves number them: 10000 major + 100 minor + patch. 0: the call
// fails.
using ReadNumber = int64_t (*)(void* function);

int64_t ReturnedNumber(void* function) {
  return static_cast<int64_t>(reinterpret_cast<size_t (*)()>(function)());
}

int64_t NcclNumber(void* function) {
  int number = 0;
  return reinterpret_cast<int (*)(int*)>(function)(&number) == 0 ? number : 0;
}

int64_t NvrtcNumber(void* function) {
  int major = 0;
  int minor = 0;
  if (reinterpret_cast<int (*)(int*, int*)>(function)(&major, &minor) != 0) return 0;
  return 10000 * major + 100 * minor;
}

// What Weft knows of a library.
struct LibraryFacts {
  const char* name;
  std::vector<std::string> files;  // newer first
  const char* version_function;
  ReadNumber read;
  int64_t oldest;
  int64_t too_new;  // the first that is
  const char* source;
};

const LibraryFacts& FactsOf(CudaLibraryKind kind) {
  static const auto* const facts = new std::array<LibraryFacts, 4>{{
      {"cuBLASLt",
       {"libcublasLt.so.13", "libcublasLt.so.12"},
       "cublasLtGetVersion",
       &ReturnedNumber,
       120000,
       140000,
       "the CUDA toolkit, or the package libcublas-13-0"},
      {"cuDNN",
       {"libcudnn.so.9"},
       "cudnnGetVersion",
       &ReturnedNumber,
       90000,
       100000,
       "cuDNN 9 for CUDA 13, or the package libcudnn9-cuda-13"},
      {"NCCL",
       {"libnccl.so.2"},
       "ncclGetVersion",
       &NcclNumber,
       21800,
       30000,
       "the package libnccl2"},
      {"NVRTC",
       {"libnvrtc.so.13", "libnvrtc.so.12"},
       "nvrtcVersion",
       &NvrtcNumber,
       120000,
       140000,
       "the CUDA toolkit, or the package cuda-nvrtc-13-0"},
  }};
  return (*facts)[static_cast<size_t>(kind)];
}

std::string LibraryVersionText(int64_t number) {
  return absl::StrCat(number / 10000, ".", number / 100 % 100, ".", number % 100);
}

// Where to look: folders, and "" for where the loader looks.
std::vector<std::string> SearchedFolders(LibraryOpener& opener) {
  std::vector<std::string> folders =
      absl::StrSplit(opener.Environment("WEFT_CUDA_LIBRARIES"), ':', absl::SkipEmpty());
  folders.emplace_back("");
  folders.emplace_back("/usr/local/cuda/lib64");
  const std::string home = opener.Environment("CUDA_HOME");
  if (!home.empty() && home != "/usr/local/cuda") folders.push_back(absl::StrCat(home, "/lib64"));
  return folders;
}

absl::Status NotFound(const LibraryFacts& facts, const std::vector<std::string>& folders,
                      const std::string& refusal, LibraryOpener& opener) {
  std::vector<std::string> places;
  for (const std::string& folder : folders) {
    if (!folder.empty()) {
      places.push_back(folder);
      continue;
    }
    const std::string path = opener.Environment("LD_LIBRARY_PATH");
    places.push_back(absl::StrCat("the folders of the loader (LD_LIBRARY_PATH is ",
                                  path.empty() ? "not set" : absl::StrCat("'", path, "'"), ")"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      facts.name, " cannot be opened: looked for ", absl::StrJoin(facts.files, " and "), " in ",
      absl::StrJoin(places, ", "), refusal.empty() ? "" : absl::StrCat(" (", refusal, ")"),
      "; install ", facts.source, ", or set WEFT_CUDA_LIBRARIES to its folder"));
}

}  // namespace

std::string_view CudaLibraryName(CudaLibraryKind kind) { return FactsOf(kind).name; }

absl::StatusOr<std::unique_ptr<CudaLibrary>> CudaLibrary::Open(CudaLibraryKind kind,
                                                               LibraryOpener& opener) {
  const LibraryFacts& facts = FactsOf(kind);
  const std::vector<std::string> folders = SearchedFolders(opener);
  std::string refusal;  // of a file that is there
  for (const std::string& folder : folders) {
    for (const std::string& file : facts.files) {
      const std::string path = folder.empty() ? file : absl::StrCat(folder, "/", file);
      const absl::StatusOr<void*> handle = opener.Open(path);
      if (!handle.ok()) {
        if (!folder.empty() && opener.Exists(path)) {
          refusal = std::string(handle.status().message());
        }
        continue;
      }
      const std::string found = opener.PathOf(*handle);
      std::unique_ptr<CudaLibrary> library(
          new CudaLibrary(kind, opener, *handle, found.empty() ? path : found));
      WEFT_RETURN_IF_ERROR(library->ReadVersion());
      return library;
    }
  }
  return NotFound(facts, folders, refusal, opener);
}

absl::Status CudaLibrary::ReadVersion() {
  const LibraryFacts& facts = FactsOf(kind_);
  WEFT_ASSIGN_OR_RETURN(void* const function, Symbol(facts.version_function));
  const int64_t number = facts.read(function);
  if (number <= 0) return Refused(facts.version_function, number);
  version_ = LibraryVersionText(number);
  if (number >= facts.oldest && number < facts.too_new) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      Describe(), " is too ", number < facts.oldest ? "old" : "new", ": expected ",
      LibraryVersionText(facts.oldest), " or later, before ", LibraryVersionText(facts.too_new),
      "; install ", facts.source, ", or set WEFT_CUDA_LIBRARIES to the folder of one that fits"));
}

absl::StatusOr<void*> CudaLibrary::Symbol(const std::string& name) const {
  if (void* const symbol = opener_.Symbol(handle_, name)) return symbol;
  return absl::FailedPreconditionError(
      absl::StrCat(Describe(), " has no function ", name, "; install ", FactsOf(kind_).source,
                   ", or set WEFT_CUDA_LIBRARIES to the folder of one that has it"));
}

absl::Status CudaLibrary::Refused(std::string_view call, int64_t code,
                                  std::string_view text) const {
  return absl::InternalError(absl::StrCat(
      Describe(), " refuses ", absl::string_view(call.data(), call.size()), " with ", code,
      text.empty() ? "" : absl::StrCat(", ", absl::string_view(text.data(), text.size())),
      "; 'graph_runner doctor' shows what is installed"));
}

std::string CudaLibrary::Describe() const {
  return absl::StrCat(FactsOf(kind_).name, " ", version_, " (", path_, ")");
}

absl::StatusOr<const CudaLibrary*> FindCudaLibrary(CudaLibraryKind kind) {
  static Mutex* const mutex = new Mutex;
  static auto* const libraries = new std::array<std::unique_ptr<CudaLibrary>, 4>;
  MutexLock lock(*mutex);
  std::unique_ptr<CudaLibrary>& library = (*libraries)[static_cast<size_t>(kind)];
  if (library == nullptr) {
    WEFT_ASSIGN_OR_RETURN(library, CudaLibrary::Open(kind, SystemLibraryOpener()));
  }
  return library.get();
}

}  // namespace weft
