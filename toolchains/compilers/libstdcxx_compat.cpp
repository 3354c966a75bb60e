// What the headers of GCC 12 call and libstdc++ of GCC 8 lacks (GLIBCXX_3.4.26 to 3.4.30), linked statically
// into everything that Slipway's zig builds against libstdc++. Only what C++17 code meets in passing is here;
// whole facilities of newer libraries (std::filesystem, std::from_chars for floating point) remain link
// errors.

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <new>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <typeinfo>

namespace std {

// Called by std::allocator::allocate since GCC 11.
void __throw_bad_array_new_length() {
  throw bad_array_new_length();
}

// Called by hardened containers (_GLIBCXX_ASSERTIONS) since GCC 12.
void __glibcxx_assert_fail(const char* file, int line, const char* function, const char* condition) noexcept {
  fprintf(stderr, "%s:%d: %s: assertion '%s' failed\n", file, line, function, condition);
  abort();
}

// Called by std::make_shared where RTTI is off, since GCC 9.
bool _Sp_make_shared_tag::_S_eq(const type_info& other) noexcept {
  return other == typeid(_Sp_make_shared_tag);
}

// Members that the headers declare and expect the library to have; unoptimized code calls them.
template char* basic_string<char>::data() noexcept;
template void basic_string<char>::reserve();
template basic_string<char>::operator basic_string_view<char>() const noexcept;
template basic_string_view<char> basic_string<char>::_S_to_string_view(basic_string_view<char>) noexcept;
template basic_string<char>::__sv_wrapper::__sv_wrapper(basic_string_view<char>) noexcept;
template basic_string<char>::basic_string(basic_string<char>::__sv_wrapper, const allocator<char>&);
template basic_string<char>::iterator basic_string<char>::insert(basic_string<char>::const_iterator,
                                                                 initializer_list<char>);
template basic_ostream<char>& basic_ostream<char>::operator<<(nullptr_t);

// The default constructors stopped being default arguments of other ones in GCC 9.
template basic_stringbuf<char>::basic_stringbuf();
template basic_istringstream<char>::basic_istringstream();
template basic_ostringstream<char>::basic_ostringstream();
template basic_stringstream<char>::basic_stringstream();

// Exceptions can be moved since GCC 9. Copying is what the older library did.
logic_error::logic_error(logic_error&& other) noexcept
    : logic_error(static_cast<const logic_error&>(other)) {}
logic_error& logic_error::operator=(logic_error&& other) noexcept {
  return *this = static_cast<const logic_error&>(other);
}
runtime_error::runtime_error(runtime_error&& other) noexcept
    : runtime_error(static_cast<const runtime_error&>(other)) {}
runtime_error& runtime_error::operator=(runtime_error&& other) noexcept {
  return *this = static_cast<const runtime_error&>(other);
}

}  // namespace std
