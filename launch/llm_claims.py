"""placeholder"""
def show_claims(rows): pass
